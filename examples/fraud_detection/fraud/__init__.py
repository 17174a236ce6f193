"""The parts of the fraud detection example.

What moves:      transaction, score, decision
The job's parts: average_ticket, proximity, count, aggregator, result_table
The bank's side: gateway, presenter, service, server, client
The experiment:  cards, generator, truth, experiment, progress, report
"""
