"""What an error reply of an inference server means.

Covers: the statuses and error bodies of OpenAI, Azure, vLLM, SGLang, llama.cpp and FastAPI servers. Leaves out: what
is done about them (`client`).
"""

import httpx


def fault_of(response: httpx.Response, *, schema_may_be_refused: bool) -> tuple[str, str]:
    """Code and description of a reply whose status is not 200. `fatal`, `no_quota`: every further call would fail
    alike. `no_schema`: it does not take a response format."""
    status = response.status_code
    code, message = problem_in(response)
    description = f"HTTP {status}" + (f": {message}" if message else "")
    if status == 429:
        return ("no_quota" if code == "insufficient_quota" else "rate_limited"), description
    if status in (408, 409, 425) or status >= 500:
        return "server_error", description
    text = f"{code} {message}".lower()
    if status in (400, 422) and schema_may_be_refused and "response_format" in _one_spelling(text):
        return "no_schema", description
    if "content_filter" in text or "content management policy" in text:
        return "refused", description
    if status == 413 or any(words in text for words in ("context_length", "context length", "too long")):
        return "too_long", description
    if status in (401, 402, 403, 404, 405):
        return "fatal", description
    return "rejected", description


def problem_in(response: httpx.Response) -> tuple[str, str]:
    """Code and message of an error reply, in OpenAI's shape or FastAPI's; else the start of its text. On one line."""
    try:
        payload = response.json()
    except ValueError:
        return "", _one_line(response.text)[:300]
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or ""
        return str(error.get("code") or error.get("type") or ""), _one_line(message)[:500]
    return "", _one_line(error)[:300]


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _one_spelling(text: str) -> str:
    """Endpoints name the field in several spellings."""
    return (
        text.replace("responseformat", "response_format")
        .replace("response format", "response_format")
        .replace("guided_json", "response_format")
    )
