"""Ask the application's pages in one process, and print the answers."""

from web import app

client = app.test_client()
content = b"Subject: hello\r\n\r\nGood day.\r\n"
print(client.post("/mail/ann@example.org", data=content).get_json())
print(client.get("/next").get_json())
print(client.get("/drift").get_json())
