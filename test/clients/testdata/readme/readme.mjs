// The program of clients/node/README.md, and what it uses of the program around it.
const url = "data:,";
const build = async (day) => `report ${day}`;
// the program of README.md
redis.disconnect();
