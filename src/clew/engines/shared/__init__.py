"""What engines share. An engine imports this and the core, and no other engine."""
