"""The data that workers and the server keep in the broker: inbox, monitoring data, working memory and recall log."""
