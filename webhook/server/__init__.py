"""The webhook's HTTP server. It knows no rule: a review goes in, `webhook.engine` decides, an answer comes out."""
