"""What any HTTP interface needs: access, errors, monitoring, the server."""
