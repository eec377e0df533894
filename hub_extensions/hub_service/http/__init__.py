"""The service's HTTP side: who may call, the routes, the pages, metrics and the OpenAPI document."""
