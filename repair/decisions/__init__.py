"""Pure decisions: which engine scans, what a second look allows to be written, how fast a run may go."""
