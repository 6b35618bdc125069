// Servers under test listen on loopback: one that names no host would listen everywhere.
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  const [first] = args;
  if (first !== null && typeof first === "object" && "port" in first && !first.host) {
    args[0] = { ...first, host: "127.0.0.1" };
  } else if (/^\d+$/.test(String(first)) && typeof args[1] !== "string") {
    args.splice(1, 0, "127.0.0.1");
  }
  return listen.apply(this, args);
};
