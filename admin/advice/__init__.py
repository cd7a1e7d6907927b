"""`mailmend schema advise` behind its command: figures of traffic, the trial of compactions, how advice is shown."""
