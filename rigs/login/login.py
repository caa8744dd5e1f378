"""Logs in at a real authorization server (oidc-provider) through `longhaul login`, calls, refreshes, and logs out.

usage: login.py LONGHAUL NODE_MODULES. Prints one line for each thing that holds; the exit code is 1 when one does not.
"""
import html, http.cookiejar, json, os, re, subprocess, sys, tempfile, time, urllib.error, urllib.parse, urllib.request

longhaul, modules = sys.argv[1], sys.argv[2]
here = os.path.dirname(os.path.abspath(__file__))
folder = tempfile.mkdtemp(prefix="longhaul-login-")
os.symlink(os.path.abspath(modules), f"{folder}/node_modules")
with open(f"{folder}/provider.mjs", "w") as file:
    file.write(open(f"{here}/provider.mjs").read())
failed = []


def holds(what, does):
    print(("ok    " if does else "FAIL  ") + what, flush=True)
    if not does:
        failed.append(what)


provider = subprocess.Popen(
    ["node", "provider.mjs"], cwd=folder, env={**os.environ, "TTL": "8"}, stdin=subprocess.PIPE,
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
places = json.loads(provider.stdout.readline())
config = f"{folder}/longhaul.toml"
with open(config, "w") as file:
    file.write(f'[server]\nbind = "127.0.0.1:0"\n[servers.guarded]\nurl = "{places["resource"]}"\n')
os.mkdir(f"{folder}/state", 0o700)
common = ["--config", config, "--state", f"{folder}/state"]
env = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
server = subprocess.Popen(
    [longhaul, *common, "--json", "serve"], env=env, stdout=subprocess.PIPE,
    stderr=open(f"{folder}/stderr", "w"), text=True)
ready = json.loads(server.stdout.readline())
callback = ready["mcp"].replace("/mcp", "/oauth/callback")


def command(*words, timeout=40):
    return subprocess.run([longhaul, *common, *words], env=env, capture_output=True, text=True, timeout=timeout)


def fetch(url):
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def browse(link):
    """Clicks through the provider's pages; where it sends the browser in the end."""
    browser = urllib.request.build_opener(Stay, urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    data = None
    for _ in range(20):
        try:
            with browser.open(link, data) as response:
                page, link = response.read().decode(), response.url
        except urllib.error.HTTPError as error:
            if error.code not in (302, 303):
                raise AssertionError(f"{error.code} {error.read().decode()[:600]}")
            link, data = urllib.parse.urljoin(link, error.headers["location"]), None
            if "/oauth/callback" in link:
                return link
            continue
        action = html.unescape(re.search(r'<form[^>]*action="([^"]+)"', page).group(1))
        prompt = re.search(r'name="prompt" value="([^"]+)"', page).group(1)
        data = urllib.parse.urlencode({"prompt": prompt, "login": "ada", "password": "x"}).encode()
        link = urllib.parse.urljoin(link, action)
    raise AssertionError("no end of redirects")


def begin():
    login = subprocess.Popen([longhaul, *common, "--json", "login", "guarded", "--no-browser"], env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    text = ""
    while line := login.stdout.readline():
        text += line
        try:
            return login, json.loads(text)
        except ValueError:
            continue
    raise AssertionError(login.stderr.read())


secrets = set()
try:
    time.sleep(1)
    shown = command("servers", "show", "guarded").stdout
    holds("without a login the server is not well, and says what to do", "longhaul login guarded" in shown)
    login, begun = begin()
    asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(begun["url"]).query))
    holds("the link asks with PKCE and for this resource",
          asked["code_challenge_method"] == "S256" and asked["resource"] == places["resource"])
    holds("a browser that is started is sent there once",
          urllib.parse.urlsplit(begun["opened"]).path == "/oauth/begin")
    holds("a wrong state changes nothing", fetch(f"{callback}?state=wrong&code=x")[0] == 400)
    back = browse(begun["url"])
    came = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(back).query))
    secrets.add(came["code"])
    status, page = fetch(back)
    holds("the browser is told that it is done", status == 200 and "logged in" in page and "<script" not in page)
    said, error = login.communicate(timeout=30)
    holds("the command says where", login.returncode == 0 and places["issuer"] in said)
    holds("the same callback again is refused", fetch(back)[0] == 400)
    time.sleep(1)
    first = command("run", "count")
    holds("a call carries the token", "call 1" in first.stdout)
    time.sleep(11)
    second = command("run", "count")
    holds("after the token's end it is refreshed, and the call is made once", "call 2" in second.stdout)
    login, begun = begin()
    back = browse(begun["url"])
    mixed = re.sub(r"iss=[^&]+", "iss=https%3A%2F%2Fother.example", back)
    holds("a reply of another issuer is refused", mixed != back and fetch(mixed)[0] == 400)
    login.communicate(timeout=30)
    holds("that login came to nothing", login.returncode != 0)
    holds("who was logged in still is", "call 3" in command("run", "count").stdout)
    out = command("logout", "guarded")
    holds("logout revokes", "revoked" in out.stdout)
    time.sleep(1)
    third = command("run", "count")
    holds("after that no call has a token", "call 4" not in third.stdout)
    again = command("logout", "guarded").stdout
    holds("logging out twice does nothing", "nobody" in again)
    kept = b""
    for root, _, files in os.walk(folder, followlinks=False):
        for name in files:
            if name != "provider.mjs" and os.path.isfile(os.path.join(root, name)):
                kept += open(os.path.join(root, name), "rb").read()
    holds("nothing secret stands in a file", not any(secret.encode() in kept for secret in secrets)
          and b"code_verifier" not in kept and b"access_token" not in kept and b"Bearer " not in kept)
finally:
    server.terminate()
    provider.terminate()
    server.wait(20)
if failed:
    print(open(f"{folder}/stderr").read()[-3000:])
sys.exit(1 if failed else 0)
