"""Items: JSON values under a namespace and a key, returned exactly as they were put."""
