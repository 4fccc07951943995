"""Anthropic's Messages API: `read` a stored body, `write` a request, the `rules` of one."""
