// Not run: the same from CommonJS.
import { Redis } from "ioredis";
import lockproxy = require("lockproxy");

lockproxy.withLock(new Redis(), "a", {}, ({ token }) => token).then((token: number) => token);
