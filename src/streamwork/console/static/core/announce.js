// One polite live region for the whole console. It is used sparingly: for what a person has asked for, and for a lost connection.

export function announce(text) {
  const region = document.getElementById("announcer");
  if (region) region.textContent = text;
}
