"""Looking at a merge and running it: the plan, one attempt after another, what is observed, and why it may be refused."""
