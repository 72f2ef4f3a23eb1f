"""A sender of webhooks that counts how its attempts end, for the metrics."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from adapters.webhooks.base import Body, WebhookAnswer, WebhookFailed, WebhookRefused, WebhookSender
from adapters.webhooks.outcomes import DeliveryOutcome, delivery_outcome

if TYPE_CHECKING:
    from adapters.webhooks.signing import Signer

_NAMES: Final[dict[DeliveryOutcome, str]] = {"ok": "delivered", "retry": "retry", "failed": "failed", "gone": "gone"}


class CountedWebhookSender:
    """Sends by `inner`, and calls `count` with the outcome: that of the answer, `unanswered` or `not_allowed`."""

    def __init__(self, inner: WebhookSender, count: Callable[[str], None]) -> None:
        self._inner = inner
        self._count = count

    def post(
        self,
        url: str,
        *,
        message_id: str,
        body: Body,
        timeout_seconds: float,
        now: datetime,
        signer: Signer | None = None,
    ) -> WebhookAnswer:
        """Send as the inner sender does. Raises what it raises."""
        given: dict[str, Any] = {"message_id": message_id, "body": body, "timeout_seconds": timeout_seconds}
        try:
            answer = self._inner.post(url, **given, now=now, signer=signer)
        except WebhookRefused:
            self._count("not_allowed")
            raise
        except WebhookFailed:
            self._count("unanswered")
            raise
        self._count(_NAMES[delivery_outcome(answer)])
        return answer
