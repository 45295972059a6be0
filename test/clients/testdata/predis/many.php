<?php
// Many clients that have asked once, and stay connected until the input ends.
//
// usage: php many.php HOST PORT CLIENTS DATABASE

require 'Predis/autoload.php'; // Debian puts it on PHP's include path

[, $host, $port, $count, $database] = $argv;

function ask(array $clients): void
{
    foreach ($clients as $i => $client) {
        if ($client->get("many:$i") !== null) {
            exit("client $i got a value\n");
        }
    }
}

$clients = [];
for ($i = 0; $i < $count; $i++) {
    $clients[] = new Predis\Client(['host' => $host, 'port' => $port]
        + ($database ? ['database' => $database] : []));
}
ask($clients);
echo "asked\n";
stream_get_contents(STDIN);
ask($clients);
echo "asked again\n";
