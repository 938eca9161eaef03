"""Where tables live: filesystems, the commit log, and the backends over them."""
