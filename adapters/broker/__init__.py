"""What Reverie keeps in the broker beside the inbox: heartbeats, lag, working memory, and the recall log."""
