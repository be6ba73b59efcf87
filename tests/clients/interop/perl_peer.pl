#!/usr/bin/perl
# Perl's Gearman::Client and Gearman::Worker as a peer of the interop tests; `peers.rs` describes the lines it speaks.
# Usage: perl_peer.pl HOST PORT client [exceptions] | perl_peer.pl HOST PORT worker
use strict;
use warnings;
use Gearman::Client;
use Gearman::Worker;
use Time::HiRes ();

$| = 1;
my ($host, $port, $role, $exceptions) = @ARGV;
my $server = "$host:$port";

sub say_it { print join(" ", @_), "\n" }
sub hex_of { unpack "H*", ref $_[0] ? ${ $_[0] } : $_[0] }

$role eq "client" ? client() : worker();

sub client {
    my $client = Gearman::Client->new(job_servers => [$server], exceptions => $exceptions ? 1 : 0);
    my $set = $client->new_task_set;
    while (my $order = <STDIN>) {
        chomp $order;
        my ($what, $tag, @rest) = split / /, $order, -1;
        if ($what eq "submit") {
            my $handle = submit($client, $set, $tag, @rest);
            $handle =~ s{.*//}{};
            say_it($tag, "created", $handle);
        }
        elsif ($what eq "wait") {
            $set->wait;
            $set = $client->new_task_set;
        }
        elsif ($what eq "ask") {
            my $status = $client->get_status("$server//$rest[0]");
            say_it($tag, "is", $status->known, $status->running, @{ $status->progress });
        }
    }
}

sub submit {
    my ($client, $set, $tag, $way, $priority, $function, $unique, $body) = @_;
    my $task = Gearman::Task->new(
        $function,
        \pack("H*", $body),
        {
            uniq         => pack("H*", $unique),
            priority     => $priority,
            on_status    => sub { say_it($tag, "status", @_) },
            on_data      => sub { say_it($tag, "data", hex_of($_[0])) },
            on_warning   => sub { say_it($tag, "warning", hex_of($_[0])) },
            on_complete  => sub { say_it($tag, "complete", hex_of($_[0])) },
            on_fail      => sub { say_it($tag, "fail") },
            on_exception => sub { say_it($tag, "exception", hex_of($_[0])) },
        }
    );
    return $way eq "background" ? $client->dispatch_background($task) : $set->add_task($task);
}

sub worker {
    my $worker = Gearman::Worker->new(job_servers => [$server], client_id => "interop");
    $worker->register_function(echo => sub { $_[0]->arg });
    $worker->register_function(note => sub { say_it("worker", "note", hex_of($_[0]->arg)); $_[0]->arg });
    $worker->register_function(
        steps => sub {
            my $job = shift;
            $job->set_status(1, 2);
            $worker->send_work_data($job, "half of ");
            $worker->send_work_warning($job, "mind the gap");
            return "whole of " . $job->arg;
        }
    );
    $worker->register_function(fail => sub { undef });
    # The worker sends WORK_EXCEPTION with this text, frozen by Storable, and then WORK_FAIL.
    $worker->register_function(raise => sub { die "went wrong\n" });
    $worker->register_function(
        hold => sub {
            my $job = shift;
            $job->set_status(3, 4);
            Time::HiRes::sleep(0.005) while -e $job->arg;
            return "let go";
        }
    );
    $worker->work while 1;
}
