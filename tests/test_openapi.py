"""The OpenAPI document, held against the real service by generated requests."""

import schemathesis

schemathesis.checks.load_all_checks()
