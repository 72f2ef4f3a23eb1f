"""Messages and files on their way to the database: payloads, the inbox in the broker, receipts, pipeline status."""
