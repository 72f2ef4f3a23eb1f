"""The calls for notifications: what became of schedules, until somebody has seen it."""

from __future__ import annotations

from collections.abc import Iterable

from reverie.http import HttpTransport
from reverie.scheduling.checks import check_ids
from reverie.scheduling.notification_types import Acknowledged, Acknowledgement, NotificationPage


class NotificationCalls:
    """`notifications` and `acknowledge_notifications`, for a client that has a transport."""

    _http: HttpTransport

    def notifications(
        self,
        limit: int = 50,
        offset: int = 0,
        *,
        user: str | None = None,
        schedule: str | None = None,
        channel: str | None = None,
        everything: bool = False,
    ) -> NotificationPage:
        """What is to be told, the oldest first: to a user, of a schedule, on a channel, where given.

        With `everything` also what was acknowledged and is still kept.
        """
        query = {
            "limit": limit,
            "offset": offset,
            "user": user,
            "schedule": schedule,
            "channel": channel,
            "everything": "true" if everything else None,
        }
        return self._http.call("GET", "/v1/notifications", NotificationPage, query=query)

    def acknowledge_notifications(self, ids: Iterable[str]) -> int:
        """Take notifications off the list, at most 1,000; returns how many were on it. Raises `Rejected`."""
        body = Acknowledgement(ids=check_ids(ids))
        return self._http.call("POST", "/v1/notifications/acknowledge", Acknowledged, body=body).acknowledged
