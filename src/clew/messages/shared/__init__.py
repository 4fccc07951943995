"""What the formats share: parts of their readers, writers and rules, and media in messages."""
