"""From snapshots to Prometheus metrics: the catalogue, what each device reports, and the text that a scrape gets."""
