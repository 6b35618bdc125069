"""What a caller may use of the resources and prompts of an agent's servers, by its rights. Pure."""

from __future__ import annotations

from bridge.identity.callers.principals import Principal
from bridge.identity.callers.resource_rights import ALL, may_become, may_lead_there, may_use, scheme_of
from bridge.translate.extensions.shared_results import SharedView


def view_of(principal: Principal, allow_file: bool) -> SharedView:
    """What a principal may use of resources and prompts. `allow_file` says whether `file:` URIs are passed on."""
    globs = principal.resource_globs

    def is_passed(uri: str) -> bool:
        return allow_file or scheme_of(uri) != "file"

    return SharedView(
        ALL not in globs or ALL not in principal.prompt_globs,
        lambda uri: is_passed(uri) and may_use(globs, uri),
        lambda template: is_passed(template) and may_lead_there(globs, template),
        lambda template, values: is_passed(template) and may_become(globs, template, values),
        principal.may_use_prompt,
    )
