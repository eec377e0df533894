"""The service's HTTP interface: authentication, routes, pages, metrics and the OpenAPI document."""
