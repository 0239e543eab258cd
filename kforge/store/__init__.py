"""What a run leaves behind: its events, its candidates by content, the run index, and the files given to the user."""
