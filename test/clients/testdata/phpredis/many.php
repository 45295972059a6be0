<?php
// Many clients that have asked once, and stay connected until the input ends.
//
// usage: php many.php HOST PORT CLIENTS DATABASE

[, $host, $port, $count, $database] = $argv;

function ask(array $clients): void
{
    foreach ($clients as $i => $client) {
        if ($client->get("many:$i") !== false || $client->getLastError() !== null) {
            exit("client $i got a value, or " . $client->getLastError() . "\n");
        }
    }
}

$clients = [];
for ($i = 0; $i < $count; $i++) {
    $client = new Redis();
    $client->connect($host, (int) $port);
    if ($database) {
        $client->select((int) $database);
    }
    $clients[] = $client;
}
ask($clients);
echo "asked\n";
stream_get_contents(STDIN);
ask($clients);
echo "asked again\n";
