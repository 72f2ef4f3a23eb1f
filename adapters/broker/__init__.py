"""What workers and the server keep in the broker: inbox, monitoring data, working memory and the recall log."""
