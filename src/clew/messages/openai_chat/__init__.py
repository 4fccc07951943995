"""OpenAI's Chat Completions: `read` a stored body, `write` a request, the `rules` of one."""
