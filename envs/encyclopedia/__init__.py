"""The embedded miniature encyclopedia: articles, questions, claims and worked exemplars."""
