// Not run: the same from CommonJS.
import { Redis } from "ioredis";
import lockproxy = require("../../../../clients/node/lockproxy.cjs");

lockproxy.withLock(new Redis(), "a", {}, ({ token }) => token).then((token: number) => token);
