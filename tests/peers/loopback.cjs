// Servers under test listen on loopback: one that names no host would listen everywhere. They may ask for their port
// right after `listen`, which has to be over by then as it is for them: a host's name would be looked up first.
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  const [first] = args;
  const isOptions = first !== null && typeof first === "object" && "port" in first;
  const namesNoHost = isOptions ? !first.host : /^\d+$/.test(String(first)) && typeof args[1] !== "string";
  if (namesNoHost) {
    const handle = net._createServerHandle("127.0.0.1", Number(isOptions ? first.port : first), 4);
    if (typeof handle !== "number") args[0] = { _handle: handle };
    else if (isOptions) args[0] = { ...first, host: "127.0.0.1" }; // which says what is wrong
    else args.splice(1, 0, "127.0.0.1");
  }
  return listen.apply(this, args);
};
