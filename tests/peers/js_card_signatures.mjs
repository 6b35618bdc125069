// Signatures of cards by @a2a-js/sdk. Reads a line of JSON: a card, a key set that is trusted, and the private key in
// PEM with its id that signs. Prints whether the card is verified, as it is and as the SDK has parsed it, and the card
// with a signature of its own in place of others.
import { createPrivateKey } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// The SDK is not installed above this file, where `import` would look for it.
const sdk = createRequire(process.argv[2])("@a2a-js/sdk");
const { card, trusted, pem, kid } = JSON.parse(readFileSync(0, "utf8"));
console.debug = () => {};

const verify = sdk.verifyAgentCardSignature(async (id) => trusted.keys.find((key) => key.kid === id));
const holds = (one) =>
  verify(one).then(
    () => true,
    () => false,
  );
const sign = sdk.generateAgentCardSignature(createPrivateKey(pem), { alg: "ES256", kid, typ: "JOSE" });
const signed = await sign({ ...card, signatures: [] });
const parsed = sdk.AgentCard.fromJSON(card);
const canonical = sdk.canonicalizeAgentCard(card);
console.log(JSON.stringify({ received: await holds(card), parsed: await holds(parsed), canonical, signed }));
