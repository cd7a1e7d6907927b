"""The HTTP sides of servers: who may ask, what is on record, errors, health and metrics; and the routes of each."""
