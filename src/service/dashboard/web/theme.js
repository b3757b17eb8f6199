// Applies the chosen colours before the first paint. Without a choice the style sheet follows the system.
try {
  const theme = localStorage.getItem("hermod.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; then the system decides.
}
