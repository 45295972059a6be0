<?php
// The program of clients/php/README.md, and what it uses of the program around it.
require 'vendor/autoload.php';
$r = new Redis();
$r->connect('127.0.0.1', 6380);
function build(int $day): string { return "report $day"; }
// the program of README.md
