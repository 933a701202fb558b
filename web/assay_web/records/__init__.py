"""Records for programs: pairs into the workspace, votes and decisions out of it as they come."""
