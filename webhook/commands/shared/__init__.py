"""Share flags and work between commands. No command imports another one."""
