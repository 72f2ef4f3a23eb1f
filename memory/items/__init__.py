"""Items: storing, matching, embedding and searching them."""
