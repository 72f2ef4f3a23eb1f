"""Handing over messages and files: payloads, the inbox in the broker, receipts, and the state of the pipeline."""
