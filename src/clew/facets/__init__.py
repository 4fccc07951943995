"""Simple ways in, for those who want less than a thread: conversations, runs, sessions."""
