"""Models: who answers, one file a provider, and what a call passes on its way."""

MODELS = {
    "openai": "runner.models.openai:OpenAI",
    "anthropic": "runner.models.anthropic:Anthropic",
    "local": "runner.models.local:Local",
    "replay": "runner.models.replay:Replay",
    "scripted": "runner.models.scripted:Scripted",
}
"""Every provider's word in a job, and where it is (entry points: `overnight.models`)."""
