"""Webhooks: signed JSON by POST to receivers that somebody else runs, and never to an address that is not allowed."""

from __future__ import annotations

from adapters.webhooks.addresses import AllowedHosts
from adapters.webhooks.base import (
    LONGEST_ANSWER_BYTES,
    Body,
    WebhookAnswer,
    WebhookFailed,
    WebhookRefused,
    WebhookSender,
)
from adapters.webhooks.in_memory import Posted, ScriptedWebhookSender
from adapters.webhooks.outcomes import Verdict, reason, verdict
from adapters.webhooks.secret_file import installation_secret
from adapters.webhooks.sender import HttpWebhookSender
from adapters.webhooks.signing import Signer, new_secret
from adapters.webhooks.urls import WebhookUrl, check_webhook_url

__all__ = [
    "LONGEST_ANSWER_BYTES",
    "AllowedHosts",
    "Body",
    "HttpWebhookSender",
    "Posted",
    "ScriptedWebhookSender",
    "Signer",
    "Verdict",
    "WebhookAnswer",
    "WebhookFailed",
    "WebhookRefused",
    "WebhookSender",
    "WebhookUrl",
    "check_webhook_url",
    "installation_secret",
    "new_secret",
    "reason",
    "verdict",
]
