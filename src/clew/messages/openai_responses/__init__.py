"""OpenAI's Responses API: `read` stored items, `write` a request, the `rules` of one."""
