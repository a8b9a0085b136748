"""An nginx of one process, which answers each request with the same and logs a line."""

from __future__ import annotations

_SETTINGS = """\
daemon off; master_process off; worker_processes 1; pid {dir}/pid; error_log /dev/null;
events {{ worker_connections 64; }}
http {{
  log_format one '1'; access_log {dir}/log one;
  client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;
  uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e; keepalive_requests 10000000;
  {http}
  server {{ listen 127.0.0.1:{port}{tls}; location / {{ return 200 "{body}"; }} }}
}}
"""


def nginx(folder, port, *, certificate=None, http="", body="hello"):
    """Its command; `certificate`: files of one and its key, then by TLS 1.3."""
    tls = ""
    if certificate:
        tls = " ssl; ssl_protocols TLSv1.3; ssl_certificate {}; ssl_certificate_key {}"
        tls = tls.format(*certificate)
    settings = folder / "conf"
    settings.write_text(
        _SETTINGS.format(dir=folder, port=port, tls=tls, http=http, body=body)
    )
    return ["nginx", "-p", str(folder), "-c", str(settings)]


def requests_logged(folder):
    """How many requests it has answered."""
    return len((folder / "log").read_text().splitlines())
