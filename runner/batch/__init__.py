"""Batch APIs at half the price: calls are collected, submitted in waves, and come back within a day.

`settings` is what a job says; `log` the life of each batch, as lines on disk; `rest` tells when nothing can
move but by a batch; `passage` collects calls, `courier` brings a batch to its end; `api` is what a provider must
do, `openai` and `anthropic` do it; `shapes` and `files` are the same by files, for whatever eats them.
"""
