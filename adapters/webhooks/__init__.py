"""Webhooks: signed JSON, posted to receivers run by others, and only to allowed addresses."""

from __future__ import annotations

from adapters.webhooks.addresses import AllowedHosts
from adapters.webhooks.agent_secrets import AgentSecrets, derived_secret
from adapters.webhooks.base import (
    MAX_ANSWER_BYTES,
    Body,
    WebhookAnswer,
    WebhookFailed,
    WebhookRefused,
    WebhookSender,
)
from adapters.webhooks.in_memory import Posted, ScriptedWebhookSender
from adapters.webhooks.outcomes import DeliveryOutcome, delivery_outcome, describe_answer
from adapters.webhooks.policy import WebhookPolicy, policy_of
from adapters.webhooks.rotation_file import secrets_in
from adapters.webhooks.secret_file import installation_secret
from adapters.webhooks.sender import HttpWebhookSender
from adapters.webhooks.signing import Signer, new_secret
from adapters.webhooks.urls import WebhookUrl, check_webhook_url

__all__ = [
    "MAX_ANSWER_BYTES",
    "AgentSecrets",
    "AllowedHosts",
    "Body",
    "DeliveryOutcome",
    "HttpWebhookSender",
    "Posted",
    "ScriptedWebhookSender",
    "Signer",
    "WebhookAnswer",
    "WebhookFailed",
    "WebhookPolicy",
    "WebhookRefused",
    "WebhookSender",
    "WebhookUrl",
    "check_webhook_url",
    "delivery_outcome",
    "derived_secret",
    "describe_answer",
    "installation_secret",
    "new_secret",
    "policy_of",
    "secrets_in",
]
