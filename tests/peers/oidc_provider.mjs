// Issuers of tokens, built on oidc-provider: strangers that the tests trust.
//
//   node oidc_provider.mjs <package.json of oidc-provider> NAME ...
//
// starts one issuer for each name on loopback, prints {NAME: URL} on one line and serves until its stdin ends. Each
// has keys of its own. How a test uses them is in oidc_provider.py.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [, , manifest, ...names] = process.argv;
// The packages are not installed above this file, where `import` would look for them.
const require = createRequire(manifest);
const { default: Provider, errors, interactionPolicy } = await import(pathToFileURL(require.resolve("oidc-provider")));
const jose = await import(pathToFileURL(require.resolve("jose")));
console.info = console.warn = () => {}; // what it says of settings that are not for production

const SCOPES = "read write admin tools:read tools:write";
const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TYPES = "urn:ietf:params:oauth:token-type:";
const ID_JAG = "oauth-id-jag+jwt";
const OWN_METADATA = ["access_token_seconds", "access_token_format", "id_jag_client_id"];
const issuers = new Map(); // URL to public keys
const urls = {};

async function signingKey(alg) {
  const { privateKey } = await jose.generateKeyPair(alg, { extractable: true });
  return { ...(await jose.exportJWK(privateKey)), alg, use: "sig", kid: crypto.randomUUID() };
}

function resourceServer(client, resource) {
  if (new URL(resource).hostname.startsWith("forbidden.")) throw new errors.InvalidTarget();
  return {
    scope: SCOPES,
    audience: resource,
    accessTokenTTL: client.access_token_seconds ?? 3600,
    accessTokenFormat: client.access_token_format ?? "jwt",
    jwt: { sign: { alg: "ES256" } },
  };
}

function configuration(name, keys) {
  return {
    jwks: { keys },
    cookies: {
      keys: [crypto.randomUUID()],
      // A browser sends the cookies of one port of a host to all others, too.
      names: { session: `_session_${name}`, interaction: `_interaction_${name}`, resume: `_resume_${name}` },
    },
    clientAuthMethods: ["client_secret_basic", "client_secret_post", "private_key_jwt", "none"],
    discovery: { authorization_grant_profiles_supported: ["urn:ietf:params:oauth:grant-profile:id-jag"] },
    extraClientMetadata: {
      properties: OWN_METADATA,
      // A client that registers the scope of its first login could never step up: each other one would be refused.
      validator: (ctx, key, value, metadata) => { delete metadata.scope; },
    },
    extraTokenClaims: (ctx, token) => (token.gty === EXCHANGE ? { act: { sub: token.clientId } } : undefined),
    features: {
      devInteractions: { enabled: false },
      introspection: { enabled: true, allowedPolicy: () => true },
      clientCredentials: { enabled: true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: (ctx, client, oneOf) => oneOf?.[0],
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource, client) => resourceServer(client, resource),
      },
      revocation: { enabled: true, allowedPolicy: () => true },
    },
    findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@example.com` }) }),
    interactions: { policy: interactionPolicy.base(), url: (ctx, interaction) => `/interaction/${interaction.uid}` },
    issueRefreshToken: (ctx, client) => client.grantTypeAllowed("refresh_token"),
    rotateRefreshToken: true,
  };
}

// The person at the browser is in a cookie, or in the login hint. Approves everything, or with another cookie nothing.
async function approve(provider, request, response) {
  const { params, grantId } = await provider.interactionDetails(request, response);
  const cookies = Object.fromEntries((request.headers.cookie ?? "").split("; ").map((pair) => pair.split("=")));
  const accountId = cookies.person ?? params.login_hint;
  if (!accountId) {
    response.writeHead(401, { "content-type": "text/plain" });
    return response.end("nobody is at this browser");
  }
  const merge = { mergeWithLastSubmission: false };
  if (cookies.answer === "no") {
    return provider.interactionFinished(request, response, { error: "access_denied" }, merge);
  }
  const grant = (grantId && (await provider.Grant.find(grantId)))
    || new provider.Grant({ accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope ?? "openid");
  for (const resource of [params.resource ?? []].flat()) grant.addResourceScope(resource, SCOPES);
  const result = { login: { accountId }, consent: { grantId: await grant.save() } };
  return provider.interactionFinished(request, response, result, merge);
}

async function verified(token, options) {
  try {
    const { iss } = jose.decodeJwt(token);
    const { payload } = await jose.jwtVerify(token, issuers.get(iss), { issuer: iss, ...options });
    return payload;
  } catch (cause) {
    throw new errors.InvalidGrant("the token is not valid", { cause });
  }
}

function scopeOf(asked, had) {
  const known = new Set((had ?? "").split(" "));
  return (asked ?? had ?? "").split(" ").filter((scope) => known.has(scope)).join(" ") || undefined;
}

async function give(ctx, accountId, gty, resource, scope) {
  const { client, provider } = ctx.oidc;
  const token = new provider.AccessToken({ accountId, client, gty, scope });
  token.resourceServer = new provider.ResourceServer(resource, resourceServer(client, resource));
  const access_token = await token.save();
  ctx.body = { access_token, token_type: "Bearer", expires_in: token.expiration, scope };
}

// RFC 8693. For an ID-JAG it is the first leg of the draft identity assertion authorization grant.
function exchange(key) {
  return async (ctx) => {
    const { client, params, provider } = ctx.oidc;
    const types = ["access_token", "jwt", "id_token"].map((type) => TYPES + type);
    if (!params.subject_token || !types.includes(params.subject_token_type)) {
      throw new errors.InvalidRequest("a subject_token of a known subject_token_type is needed");
    }
    const subject = await verified(params.subject_token);
    const target = params.resource ?? params.audience;
    if (!target) throw new errors.InvalidTarget();
    if (params.requested_token_type === `${TYPES}id-jag`) {
      const claims = {
        client_id: client.id_jag_client_id ?? client.clientId,
        resource: params.resource,
        scope: params.scope,
        jti: crypto.randomUUID(),
      };
      const access_token = await new jose.SignJWT(claims)
        .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: ID_JAG })
        .setIssuer(provider.issuer).setSubject(subject.sub).setAudience(params.audience ?? target)
        .setIssuedAt().setExpirationTime("5 min")
        .sign(await jose.importJWK(key, key.alg));
      ctx.body = { issued_token_type: `${TYPES}id-jag`, access_token, token_type: "N_A", expires_in: 300 };
      return;
    }
    await give(ctx, subject.sub, EXCHANGE, target, scopeOf(params.scope, subject.scope));
    ctx.body.issued_token_type = `${TYPES}access_token`;
  };
}

// RFC 7523: the second leg, with an ID-JAG of any other issuer here.
async function assertion(ctx) {
  const { client, params, provider } = ctx.oidc;
  const { typ } = jose.decodeProtectedHeader(params.assertion ?? "e30.e30.e30");
  const claims = await verified(params.assertion, { audience: provider.issuer, typ: ID_JAG });
  if (typ !== ID_JAG || claims.client_id !== client.clientId) throw new errors.InvalidGrant("it is for another client");
  await give(ctx, claims.sub, ASSERTION, claims.resource ?? params.resource, scopeOf(params.scope, claims.scope));
}

function telling(provider) {
  const seen = [];
  const note = (event) => (ctx, error) => {
    const { params, client } = ctx.oidc ?? {};
    const reason = error ? { error: error.error ?? error.message, detail: error.error_detail } : {};
    seen.push({ event, client_id: client?.clientId, grant_type: params?.grant_type, resource: params?.resource, ...reason });
  };
  for (const event of ["grant.success", "grant.error", "grant.revoked", "authorization.success", "authorization.error"]) {
    provider.on(event, note(event));
  }
  provider.on("registration_create.success", (ctx, client) => {
    seen.push({ event: "registration", client_id: client.clientId, redirect_uris: client.redirectUris });
  });
  provider.on("server_error", (ctx, error) => console.error(error));
  return seen;
}

async function start(name) {
  const keys = await Promise.all(["ES256", "RS256"].map(signingKey));
  const server = createServer();
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const url = `http://127.0.0.1:${server.address().port}`;
  issuers.set(url, jose.createLocalJWKSet({ keys: keys.map(({ d, p, q, dp, dq, qi, ...key }) => key) }));
  urls[name] = url;
  const provider = new Provider(url, configuration(name, keys));
  const asked = ["subject_token", "subject_token_type", "requested_token_type", "audience", "resource", "scope"];
  provider.registerGrantType(EXCHANGE, exchange(keys[0]), [...asked, "actor_token", "actor_token_type"]);
  provider.registerGrantType(ASSERTION, assertion, ["assertion", "resource", "scope"]);
  const seen = telling(provider);
  const answer = provider.callback();
  server.on("request", (request, response) => {
    if (request.url.startsWith("/interaction/")) {
      approve(provider, request, response).catch((error) => {
        console.error(error);
        response.writeHead(500).end(String(error));
      });
    } else if (request.url === "/seen") {
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(seen));
    } else {
      // RFC 6749 section 3.3: a scope that a client leaves out is the issuer's to choose. This one would deny access.
      const isSilent = request.url.startsWith("/auth?") && !new URL(request.url, url).searchParams.has("scope");
      if (isSilent) request.url += "&scope=openid";
      answer(request, response);
    }
  });
}

await Promise.all(names.map(start));
console.log(JSON.stringify(urls));
process.stdin.resume().on("end", () => process.exit());
