"""Changes of mails that wait in Pulsar: moving, redriving, removing, restoring."""
