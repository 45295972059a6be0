#!/usr/bin/perl
# Ordinary commands and locks through lockproxy with Redis.pm (RESP2).
#
# usage: redis.pl HOST PORT
use strict;
use warnings;
use IO::Select;
use Redis;

@ARGV == 2 or die "usage: redis.pl HOST PORT\n";
my $server = join ':', @ARGV;
my $prefix = 'client-test:perl:';

sub dial { Redis->new(server => $server, cnx_timeout => 120, read_timeout => 120) }
my ($r, $other) = (dial(), dial());

sub text {
    my ($v) = @_;
    return ref $v ? '[' . join(', ', map { text($_) } @$v) . ']' : defined $v ? $v : 'undef';
}

sub check {
    my ($what, $got, $want) = @_;
    die "FAIL $what: got ", text($got), ', want ', text($want), "\n" if text($got) ne text($want);
}

# Redis.pm dies with "[command] ERR text, at FILE line N".
sub check_error {
    my ($what, $code, $want) = @_;
    die "FAIL $what: no error\n" if eval { $code->(); 1 };
    die "FAIL $what: got $@" if index($@, "] $want") < 0;
}

# Replies of a pipeline come by callback, as (reply, error).
sub pipeline_of {
    my (@commands) = @_;
    my @replies;
    for (@commands) {
        my ($name, @args) = @$_;
        $r->$name(@args, sub { push @replies, $_[1] // $_[0] });
    }
    $r->wait_all_responses;
    return \@replies;
}

sub data {
    my ($key, $value) = ("${prefix}data", "binary \0\r\n\xff" x 10000);
    $r->del($key, "$key:n", "$key:hash");
    check('GET of a missing key', $r->get($key), undef);
    check('SET', $r->set($key, $value), 'OK');
    check('GET', $other->get($key), $value);
    check('INCR', $r->incr("$key:n"), 1);
    check('HSET', $r->hset("$key:hash", a => 1, b => 2), 2);
    check('HGETALL', [$r->hgetall("$key:hash")], ['a', 1, 'b', 2]);
    check_error('INCR of a hash', sub { $r->incr("$key:hash") }, 'WRONGTYPE ');
}

sub pipeline {
    my $key = "${prefix}pipe";
    my @commands = map { (['set', "$key:$_", $_], ['get', "$key:$_"]) } 1 .. 200;
    check('pipeline', pipeline_of(@commands), [map { ('OK', $_) } 1 .. 200]);
}

sub transaction {
    my $key = "${prefix}tx";
    $r->multi;
    $r->set($key, 1);
    $r->incr($key);
    check('MULTI/EXEC', [$r->exec], ['OK', 2]);
    $r->watch($key);
    $other->set($key, 'changed');
    $r->multi;
    $r->set($key, 'lost');
    check('EXEC of a changed key', scalar $r->exec, undef);
    check('GET after WATCH', $r->get($key), 'changed');
}

sub pubsub {
    my ($channel, $got) = ("${prefix}channel");
    my $on_message = sub { $got = $_[0] };
    $r->subscribe($channel, $on_message);
    check('PUBLISH', $other->publish($channel, 'hello'), 1);
    for (1 .. 600) { $r->wait_for_messages(0.2) unless defined $got }    # returns after that long without a message
    check('message', $got, 'hello');
    $r->unsubscribe($channel, $on_message);
    check('PUBLISH without subscribers', $other->publish($channel, 'hello'), 0);
    check('PING after UNSUBSCRIBE', $r->ping, 'PONG');
}

sub script {
    my $key = "${prefix}script";
    check('EVAL', [$r->eval('return {KEYS[1], ARGV[1], 7}', 1, $key, 'arg')], [$key, 'arg', 7]);
    my $sha = $r->script_load("return redis.call('SET', KEYS[1], ARGV[1])");
    check('EVALSHA', $r->evalsha($sha, 1, $key, 'by script'), 'OK');
    check('GET', $r->get($key), 'by script');
}

sub wait_command { check('WAIT', $r->wait(0, 100), 0) }

sub lock {
    my $key = "${prefix}lock";
    my $token = $r->lock($key, 600);
    check("LOCK's token is an integer", $token =~ /^[1-9][0-9]*$/ ? 1 : 0, 1);
    check('LOCK from another connection', $other->lock($key, 600), undef);
    check('UNLOCK with a wrong token', $other->unlock($key, $token + 1), 0);
    check('UNLOCK with the token', $other->unlock($key, $token), 1);
    check('the next token is greater', $r->lock($key, 600) > $token ? 1 : 0, 1);
    check('UNLOCK by another connection', $other->unlock($key), 0);
    check('UNLOCK by this connection', $r->unlock($key), 1);
}

sub lock_error {
    check_error('LOCK with a negative timeout', sub { $r->lock("${prefix}lock", -1) }, 'ERR timeout is negative');
}

sub lock_order {
    my ($key, $text) = ("${prefix}order", 'written under the lock');
    my $replies = pipeline_of(['lock', $key, 600], ['set', "$key:value", $text], ['unlock', $key], ['get', "$key:value"]);
    check("LOCK's token is an integer", shift(@$replies) =~ /^[1-9][0-9]*$/ ? 1 : 0, 1);
    check('SET, UNLOCK, GET', $replies, ['OK', 1, $text]);
}

sub lock_wait {
    my ($key, $granted) = ("${prefix}wait");
    my $token = $r->lock($key, 600);
    $other->lock($key, 600, 'WAIT', 60, sub { $granted = $_[0] });
    check('the waiter waits', scalar IO::Select->new($other->{sock})->can_read(0.2), undef);
    check('SET, UNLOCK', pipeline_of(['set', "$key:value", $token], ['unlock', $key]), ['OK', 1]);
    $other->wait_all_responses;
    check("the waiter's token is greater", $granted > $token ? 1 : 0, 1);
    check('what the waiter sees', $other->get("$key:value"), $token);
    check('UNLOCK by the waiter', $other->unlock($key), 1);
}

sub lock_shared {
    my ($key, $limit, @both) = map { $prefix . $_ } qw(shared limit {all}1 {all}2);
    my @tokens = ($r->lock($key, 600, 'SHARED'), $other->lock($key, 600, 'SHARED'));
    check('LOCK next to SHARED', $r->lock($key, 600), undef);
    my @holders = map { my %h = @$_; $h{token} } $r->lockinfo($key, 'HOLDERS');
    check('HOLDERS', [reverse @holders], \@tokens);    # the latest is the first
    print "holds $key @tokens\n";

    for ($r, $other) {
        check('LIMIT 2', defined $_->lock($limit, 600, 'LIMIT', 2) ? 1 : 0, 1);
    }
    check('LIMIT 2, the third', $r->lock($limit, 600, 'LIMIT', 2), undef);
    check('LIMIT 3', defined $r->lock($limit, 600, 'LIMIT', 3) ? 1 : 0, 1);
    check('UNLOCK of all', $r->unlock($limit, 'FORCE'), 1);

    my $token = $r->lockall(600, 2, @both);
    check('LOCKALL of one that is held', $other->lockall(600, 1, $both[1]), undef);
    check('UNLOCKALL', $r->unlockall($token, 2, @both), 2);

    my ($anna, $ben, $granted) = ("${prefix}anna", "${prefix}ben");
    $r->lock($anna, 600, 'OWNER', 'anna');
    $other->lock($ben, 600, 'OWNER', 'ben');
    $other->lock($anna, 600, 'WAIT', 60, 'OWNER', 'ben', sub { $granted = $_[0] });
    until (() = $r->lockinfo($anna, 'WAITERS')) { select undef, undef, undef, 0.01 }
    die "FAIL two owners wait for each other: no error\n"
        if eval { $r->lock($ben, 600, 'WAIT', 60, 'OWNER', 'anna'); 1 };
    print 'refused ', $@ =~ /^\[lock\] (.*?), +at /, "\n";
    check('UNLOCK of what ben waits for', $r->unlock($anna), 1);
    $other->wait_all_responses;
    check('UNLOCK by ben', $other->unlock($anna, $granted), 1);
    check('UNLOCK by ben', $other->unlock($ben), 1);
}

sub lock_lost {
    my $key = "${prefix}lost";
    my $mine = Redis->new(server => $server);
    $mine->lock($key, 600, 'SESSION');
    check('UNLOCK FORCE', $other->unlock($key, 'FORCE'), 1);
    check('the connection ends', scalar IO::Select->new($mine->{sock})->can_read(120) ? 1 : 0, 1);
    die "FAIL the lock is lost, and GET does not tell\n" if eval { $mine->get($key); 1 };
    check('PING', $mine->ping, undef);
}

my @steps = (
    data    => \&data, pipeline => \&pipeline, transaction => \&transaction, pubsub => \&pubsub,
    script  => \&script, 'wait-command' => \&wait_command,
    lock    => \&lock, 'lock-error' => \&lock_error, 'lock-order' => \&lock_order,
    'lock-wait' => \&lock_wait, 'lock-shared' => \&lock_shared, 'lock-lost' => \&lock_lost,
);
$| = 1;
while (my ($name, $step) = splice @steps, 0, 2) {
    $step->();
    print "ok $name\n";
}
